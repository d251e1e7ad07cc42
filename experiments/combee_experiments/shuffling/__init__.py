"""How many copies, dealt how."""
