"""The history of the schema, run by `agentgym.store.database` when a store opens."""
