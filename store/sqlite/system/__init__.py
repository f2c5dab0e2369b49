"""What operators see and order: members and orders, a module each."""
