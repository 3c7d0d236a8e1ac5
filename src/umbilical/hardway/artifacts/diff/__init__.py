"""What two sets of artifacts say differently: decoded Ignition, certificates by field, YAML by object; no secrets."""
