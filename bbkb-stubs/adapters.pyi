from orchestrator.public.adapters import *
