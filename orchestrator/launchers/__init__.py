"""Scripts and manifests that start a campaign on a cluster: Slurm, Ray jobs, Kubernetes.

What is written is a template in `templates/`, filled with the campaign's settings; nothing here talks to a cluster.
"""
