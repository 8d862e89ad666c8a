"""Which partitions are missing or older than their inputs."""
