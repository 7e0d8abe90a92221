"""An agent's episode: the world it acts in, and the policy that answers it."""
