"""vLLM runs its models as schedules say, by one name in its configuration.

--compilation-config '{"mode": 2, "backend": "dynaflow_dsl.integrations.vllm.backend"}'
--additional-config '{"dynaflow": {"schedule": "std:vllm/decoder.dfs"}}'
"""

from dynaflow_dsl.integrations.vllm.engine import backend

__all__ = ["backend"]
