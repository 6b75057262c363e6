"""From the values of a configuration file to a profile. Start reading at ``profile_reading``."""
