"""The commands that operate a running gateway: `vitalgate agents|send|stream|nodes|reload|completion`."""
