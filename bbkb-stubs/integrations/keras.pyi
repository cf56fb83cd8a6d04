from orchestrator.public.integrations.keras import TrialCallback as TrialCallback
