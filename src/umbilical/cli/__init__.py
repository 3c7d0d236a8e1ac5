"""Commands: parse options, connect the rooms, print results. No other room imports this one."""
