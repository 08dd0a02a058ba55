"""The KV cache of one launch, exact: what each layer stores, how layers are grouped, how many blocks fit."""
