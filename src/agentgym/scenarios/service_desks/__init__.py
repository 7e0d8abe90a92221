"""The service_desks scenario: 32 desks, each with different tools."""
