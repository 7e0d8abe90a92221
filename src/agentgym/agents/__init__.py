"""Agents from elsewhere: endpoints that record, and managers that run them."""
