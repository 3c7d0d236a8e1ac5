"""Machines by libvirt: RHCOS, entered by ssh. All that is done to the host is a command line of `Host`."""
