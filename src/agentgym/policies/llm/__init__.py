"""A causal language model as the policy, and the only home of torch."""
