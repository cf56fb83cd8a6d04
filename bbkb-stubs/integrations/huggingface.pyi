from orchestrator.public.integrations.huggingface import TrialCallback as TrialCallback
