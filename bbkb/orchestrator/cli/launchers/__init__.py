"""Scripts and manifests that start a campaign on a cluster: Slurm, Kubernetes.

Each output is a template in `templates/`, filled in with the campaign's settings. No code here
connects to a cluster.
"""
