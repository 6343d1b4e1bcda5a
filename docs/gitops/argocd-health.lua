-- Health of a MemoryIndex for Argo CD: resource.customizations.health.memory-index.dev_MemoryIndex in argocd-cm.
-- An embedder without pods and a suspended object wait for an event from outside, which Argo CD calls Suspended.
local health = {status = "Progressing", message = "The operator has not seen this generation yet."}
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "The object is being deleted."
  return health
end
local status = obj.status
if status == nil or status.conditions == nil or status.observedGeneration ~= obj.metadata.generation then
  return health
end
local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local ready, reconciling, stalled = conditions.Ready, conditions.Reconciling, conditions.Stalled
if ready == nil then
  return health
end
health.message = ready.reason .. ": " .. ready.message
if reconciling ~= nil and reconciling.status == "True" then
  health.status = "Progressing"
elseif stalled ~= nil and stalled.status == "True" then
  health.status = "Degraded"
elseif ready.reason == "Suspended" or ready.reason == "ScaledToZero" then
  health.status = "Suspended"
elseif ready.status == "True" then
  health.status = "Healthy"
end
return health
