from orchestrator.public.integrations.trial import Trial as Trial
