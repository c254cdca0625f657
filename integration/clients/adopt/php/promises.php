<?php
// What a lock promises, through two servers: REDIS and OTHER. Prints "kept", or which promise is not.

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\RedisStore;

function store(string $address, float $ttl = 10.0): RedisStore
{
    [$host, $port] = explode(':', getenv($address));
    $redis = new Redis();
    $redis->connect($host, (int) $port, 60);

    return new RedisStore($redis, $ttl);
}

function must(bool $kept, string $promise): void
{
    if (!$kept) {
        exit("broken: $promise\n");
    }
}

function refused(callable $call): bool
{
    try {
        $call();
    } catch (LockConflictedException $e) {
        return true;
    }

    return false;
}

$here = store('REDIS');
$there = store('OTHER');
$mine = new Key('lock:promises');
$yours = new Key('lock:promises');

$here->save($mine);
must($here->exists($mine) && $there->exists($mine) && !$there->exists($yours), 'the holder has it, and nobody else');
must(refused(fn () => $there->save($yours)) && refused(fn () => $here->save($yours)), 'another is refused');
$there->save($mine);
must($here->exists($mine), 'its holder may take it again');
must(refused(fn () => $there->putOffExpiration($yours, 5.0)), 'another cannot extend it');
$there->delete($yours);
must($here->exists($mine), 'another cannot release it');
$there->putOffExpiration($mine, 20.0);
must(!$mine->isExpired() && $here->exists($mine), 'its holder extends it at the other server');
$there->delete($mine);
must(!$here->exists($mine), 'its holder releases it at the other server');
$there->save($yours);
must(refused(fn () => $here->save($mine)), 'the next one has it');
$there->delete($yours);

$short = store('REDIS', 1.0);
$short->save($mine);
must(refused(fn () => $there->save($yours)), 'a short lease counts');
usleep(1300000);
must(!$there->exists($mine), 'it ends');
$there->save($yours);
must(refused(fn () => $here->putOffExpiration($mine, 5.0)), 'what has ended is not extended');
$here->delete($mine);
must($here->exists($yours), 'nor does it release the next one');
$there->delete($yours);
if (getenv('READ_LOCKS') === 'refused') {
    try {
        $here->saveRead($mine);
        must(false, 'read locks are refused');
    } catch (Throwable $e) {
        must(str_contains($e->getMessage(), 'ADOPTREFUSED') && str_contains($e->getMessage(), 'read lock'), 'the refusal says why: '.$e->getMessage());
    }
    must(!$here->exists($mine), 'a read lock that is refused leaves nothing');
}
echo "kept\n";
