"""Search: what an agent's memory has on a question, the best first."""
