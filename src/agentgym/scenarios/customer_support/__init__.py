"""The customer_support scenario: a simulated shop with customers."""
