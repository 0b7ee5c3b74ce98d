"""The registry of agents: values, rules and stores."""
