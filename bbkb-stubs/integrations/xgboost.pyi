from orchestrator.public.integrations.xgboost import TrialCallback as TrialCallback
