"""Ray's settings for campaigns, for a Ray instance that `bbkb` starts and for every script and
manifest that it writes.

`deploy/ray.env` contains the same settings with explanations.
"""

# Detect unresponsive nodes soon, limit output, send no usage reports.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "20000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_ROTATION_MAX_BYTES": "16777216",
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_metric_cardinality_level": "low",
}
