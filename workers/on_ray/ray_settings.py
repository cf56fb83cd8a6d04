"""Ray's settings for campaigns: of a Ray that `bbkb` starts, and in every script and manifest that
it writes.

`deploy/ray.env` holds the same and explains each of them.
"""

# A node that stops answering is noticed soon, output is bounded, no usage reports.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "20000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_ROTATION_MAX_BYTES": "16777216",
    "RAY_ROTATION_BACKUP_COUNT": "1",
}
