from orchestrator.public.strategies import *
