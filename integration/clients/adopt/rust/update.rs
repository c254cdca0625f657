//! Counts under rslock's lock: see package clients.
use redis::AsyncCommands;
use rslock::{LockError, LockManager};
use std::{env, io, time::Duration};

const PAUSE: Duration = Duration::from_millis(500); // between two tries to take a lock, at most
const TRIES: u32 = 1200;

fn ttl() -> Duration {
    Duration::from_secs(env::var("LEASE").map_or(10, |s| s.parse().expect("seconds")))
}

async fn update(locks: LockManager, mut data: redis::aio::MultiplexedConnection) -> Result<(), String> {
    let lock = locks
        .lock(b"lock:rslock", ttl())
        .await
        .map_err(|e: LockError| format!("taking the lock: {e}"))?;
    if env::var("HOLD").is_ok() {
        println!("held");
        io::stdin().read_line(&mut String::new()).expect("a line");
    }
    let counted = async {
        let n: i64 = data.get("counter").await?;
        data.set("counter", n + 1).await
    };
    let result: redis::RedisResult<()> = counted.await;
    locks.unlock(&lock).await;
    result.map_err(|e| e.to_string())
}

#[tokio::main]
async fn main() {
    let url = format!("redis://{}/", env::var("REDIS").expect("REDIS"));
    let updates: usize = env::var("UPDATES").expect("UPDATES").parse().expect("a number");
    let data = redis::Client::open(url.clone())
        .expect("an address")
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let mut locks = LockManager::new(vec![url]);
    locks.set_retry(TRIES, PAUSE);
    println!("ready");
    io::stdin().read_line(&mut String::new()).expect("a line");
    let tasks: Vec<_> = (0..updates)
        .map(|_| tokio::spawn(update(locks.clone(), data.clone())))
        .collect();
    let mut done = 0;
    for t in tasks {
        match t.await.expect("a task") {
            Ok(()) => done += 1,
            Err(e) => println!("failed: {e}"),
        }
    }
    println!("done {done}");
}
