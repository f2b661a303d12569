instance-id: {{ container.name }}-{{ config_get("volatile.uuid", "") }}
local-hostname: {{ container.name }}
{{ config_get("user.meta-data", "") }}
