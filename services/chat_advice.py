"""What a chat asks for and this server doesn't do, in sentences: better told than silently ignored."""

from collections.abc import Mapping
from typing import Any

from services.principal import Principal
from services.rag.retrieval import Models, lack_of_vectors

# Switches of RAGFlow's `prompt_config` that have no effect here.
IGNORED = (
    "tts", "keyword", "use_kg", "toc_enhance", "cross_languages", "web_search_provider", "tavily_api_key",
    "querit_api_key", "serply_api_key", "youcom_api_key", "reasoning", "reference_metadata",
)


def warnings(principal: Principal, fields: Mapping[str, Any], models: Models) -> list[str]:
    """One sentence for each of a chat's fields, as a request gave them, that has no effect."""
    prompt = fields.get("prompt_config") or {}
    told = [f"`prompt_config.{name}` has no effect" for name in IGNORED if prompt.get(name)]
    method = (fields.get("meta_data_filter") or {}).get("method")
    if method not in (None, "", "disabled", "manual"):
        told.append(f"`meta_data_filter.method` {str(method)[:80]} has no effect; `manual` filters")
    if fields.get("prompt_type") not in (None, "", "simple"):
        told.append("`prompt_type` has no effect: the prompt is used as it stands")
    rerank_id = fields.get("rerank_id")
    if rerank_id and models.find_rerank(rerank_id) is None:
        told.append(f"`rerank_id` {rerank_id} has no effect: no such model is set up")
    datasets = fields.get("dataset_ids") or fields.get("kb_ids")
    if datasets and fields.get("vector_similarity_weight"):
        lack = lack_of_vectors(principal, datasets, models)
        if lack:
            told.append(f"`vector_similarity_weight` has no effect: {lack}; words alone are compared")
    return told
