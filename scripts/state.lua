-- state: may this node vote, and which is the largest fence it ever stored?
--   {1, largest fence}  it votes; else its refusal
return refusal or {1, math.max(largest, floor)}
