from orchestrator.public.types import *
