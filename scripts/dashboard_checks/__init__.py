"""What scripts/check_dashboard holds the Grafana dashboard against."""
