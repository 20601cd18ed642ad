"""The socket between an agent's process and the root of its session: the gate, states, and whatever has authority."""
