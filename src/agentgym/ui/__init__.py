"""What people see while and after training."""
