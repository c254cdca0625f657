-- transfer: move an amount between two accounts, unless a later holder of either has been there.
--   KEYS  the accounts, hashes     ARGV  the amount, the fences of the writer's locks of both
--   1 moved, 0 the writer is stale
for i, account in ipairs(KEYS) do
  local last = tonumber(redis.call('HGET', account, 'fence') or '0')
  if last > tonumber(ARGV[1 + i]) then return 0 end
end
redis.call('HINCRBY', KEYS[1], 'balance', -ARGV[1])
redis.call('HINCRBY', KEYS[2], 'balance', ARGV[1])
for i, account in ipairs(KEYS) do redis.call('HSET', account, 'fence', ARGV[1 + i]) end
return 1
