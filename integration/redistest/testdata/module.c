/* A module for tests. It declares what it needs of Redis's module API itself, since
 * Debian does not package the header.
 *
 *   TESTMODULE.WAIT            blocks until WAKE, then +woken
 *   TESTMODULE.WAKE            how many it woke
 *   TESTMODULE.PAIRS k v ...   how many pairs; its keys are every other argument
 *   TESTMODULE.LAST ... k      its last argument; that it is a key only the module knows
 */
#include <stddef.h>

typedef struct RedisModuleCtx Ctx;
typedef struct RedisModuleString String;
typedef struct RedisModuleBlockedClient Blocked;
typedef int Command(Ctx *, String **, int);

static void (*SetModuleAttribs)(Ctx *, const char *name, int version, int api);
static int (*CreateCommand)(Ctx *, const char *name, Command *, const char *flags, int first, int last, int step);
static int (*ReplyWithSimpleString)(Ctx *, const char *);
static int (*ReplyWithLongLong)(Ctx *, long long);
static int (*ReplyWithString)(Ctx *, String *);
static int (*WrongArity)(Ctx *);
static Blocked *(*BlockClient)(Ctx *, Command *reply, Command *timeout, void (*release)(Ctx *, void *), long long ms);
static void (*SetDisconnectCallback)(Blocked *, void (*gone)(Ctx *, Blocked *));
static int (*UnblockClient)(Blocked *, void *);
static int (*IsKeysPositionRequest)(Ctx *);
static void (*KeyAtPos)(Ctx *, int);

enum { MOST = 64 };
static Blocked *waiting[MOST];
static int waiters;

static int woken(Ctx *ctx, String **argv, int argc) {
    (void)argv, (void)argc;
    return ReplyWithSimpleString(ctx, "woken");
}

static void gone(Ctx *ctx, Blocked *b) {
    (void)ctx;
    for (int i = 0; i < waiters; i++) {
        if (waiting[i] == b) {
            waiting[i] = waiting[--waiters];
            UnblockClient(b, NULL);
        }
    }
}

static int waitCommand(Ctx *ctx, String **argv, int argc) {
    (void)argv;
    if (argc != 1 || waiters == MOST) return WrongArity(ctx);
    Blocked *b = BlockClient(ctx, woken, NULL, NULL, 0);
    SetDisconnectCallback(b, gone);
    waiting[waiters++] = b;
    return 0;
}

static int wakeCommand(Ctx *ctx, String **argv, int argc) {
    (void)argv, (void)argc;
    int n = waiters;
    while (waiters > 0) UnblockClient(waiting[--waiters], NULL);
    return ReplyWithLongLong(ctx, n);
}

static int pairsCommand(Ctx *ctx, String **argv, int argc) {
    (void)argv;
    return ReplyWithLongLong(ctx, (argc - 1) / 2);
}

static int lastCommand(Ctx *ctx, String **argv, int argc) {
    if (IsKeysPositionRequest(ctx)) {
        KeyAtPos(ctx, argc - 1);
        return 0;
    }
    return ReplyWithString(ctx, argv[argc - 1]);
}

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    (void)argv, (void)argc;
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    get("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    get("RedisModule_CreateCommand", &CreateCommand);
    get("RedisModule_ReplyWithSimpleString", &ReplyWithSimpleString);
    get("RedisModule_ReplyWithLongLong", &ReplyWithLongLong);
    get("RedisModule_ReplyWithString", &ReplyWithString);
    get("RedisModule_WrongArity", &WrongArity);
    get("RedisModule_BlockClient", &BlockClient);
    get("RedisModule_SetDisconnectCallback", &SetDisconnectCallback);
    get("RedisModule_UnblockClient", &UnblockClient);
    get("RedisModule_IsKeysPositionRequest", &IsKeysPositionRequest);
    get("RedisModule_KeyAtPos", &KeyAtPos);
    SetModuleAttribs(ctx, "testmodule", 1, 1);
    return CreateCommand(ctx, "testmodule.wait", waitCommand, "blocking", 0, 0, 0) ||
           CreateCommand(ctx, "testmodule.wake", wakeCommand, "fast", 0, 0, 0) ||
           CreateCommand(ctx, "testmodule.pairs", pairsCommand, "write", 1, -1, 2) ||
           CreateCommand(ctx, "testmodule.last", lastCommand, "readonly getkeys-api", 0, 0, 0);
}
