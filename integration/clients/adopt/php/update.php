<?php
// Counts under a lock: see ../../doc.go. PHP has no threads: each process forks workers, each with a connection.

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

const TTL = 10.0; // seconds
const WORKERS = 37;

[$host, $port] = explode(':', getenv('REDIS'));
$updates = (int) getenv('UPDATES');

echo "ready\n";
fgets(STDIN);

$workers = [];
for ($i = 0; $i < WORKERS; $i++) {
    $pid = pcntl_fork();
    if ($pid !== 0) {
        $workers[] = $pid;
        continue;
    }
    try {
        $redis = new Redis();
        $redis->connect($host, (int) $port, 60);
        $factory = new LockFactory(new RedisStore($redis, TTL));
        for ($n = $i; $n < $updates; $n += WORKERS) {
            $lock = $factory->createLock('lock:symfony', TTL, false);
            if (!$lock->acquire(true)) {
                throw new LogicException('not acquired');
            }
            $redis->set('counter', (int) $redis->get('counter') + 1);
            $lock->release();
        }
    } catch (Throwable $e) {
        echo 'failed: ', get_class($e), ' ', $e->getMessage(), ' ', $e->getPrevious()?->getMessage(), "\n";
        exit(1);
    }
    exit(0);
}
$failed = false;
foreach ($workers as $pid) {
    pcntl_waitpid($pid, $status);
    $failed = $failed || $status !== 0;
}
echo 'done ', $failed ? 'not all' : $updates, "\n";
