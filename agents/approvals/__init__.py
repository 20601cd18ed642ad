"""What an agent may do only once somebody else has said yes."""
