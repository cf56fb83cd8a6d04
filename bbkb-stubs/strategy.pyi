from orchestrator.public.strategy import *
