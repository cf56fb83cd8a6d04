from orchestrator.public.integrations.lightning import TrialCallback as TrialCallback
