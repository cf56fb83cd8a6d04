from orchestrator.public.integrations.lightgbm import TrialCallback as TrialCallback
