// The steps of a client made with an official JavaScript SDK: those of the Python programs beside it.
//
// `run` goes through them and prints a JSON list of {"step", "result"} or {"step", "error"}. What differs between the
// SDKs is in `sdk`: ask(text), byId(id), sent(answer), isWorking(event), isArtifact(event), taskId(event), plain(value).

export const TEXT = "Grüße, 北京 🌍 \u2028 \x7f";

async function collect(sdk, events) {
  const seen = [];
  for await (const event of events) seen.push(sdk.plain(event));
  return seen;
}

function steps(client, sdk) {
  const stream = (text) => collect(sdk, client.sendMessageStream(sdk.ask(text)));
  let done, paused;
  return {
    async send() {
      const answer = await client.sendMessage(sdk.ask(TEXT));
      done = sdk.sent(answer);
      return sdk.plain(answer);
    },
    get: async () => sdk.plain(await client.getTask(sdk.byId(done))),
    get_unknown: async () => sdk.plain(await client.getTask(sdk.byId("no-such-task"))),
    stream: () => stream(TEXT),
    stream_of_a_message: () => stream("say " + TEXT),
    stream_of_what_fails: () => stream("fail " + TEXT),
    async leave() {
      const seen = [];
      for await (const event of client.sendMessageStream(sdk.ask("pause " + TEXT))) {
        seen.push(sdk.plain(event));
        if (sdk.isArtifact(event)) break;
        paused ??= sdk.taskId(event);
      }
      return seen;
    },
    async resubscribe() {
      const seen = [];
      for await (const event of client.resubscribeTask(sdk.byId(paused))) {
        if (!seen.length) await stream(`go ${paused}`);
        seen.push(event);
      }
      // How often it says that it is at work is luck.
      return seen.filter((event) => !sdk.isWorking(event)).map(sdk.plain);
    },
    resubscribe_finished: () => collect(sdk, client.resubscribeTask(sdk.byId(paused))),
    resubscribe_unknown: () => collect(sdk, client.resubscribeTask(sdk.byId("no-such-task"))),
    async cancel_while_streaming() {
      const events = [];
      let task, answer;
      for await (const event of client.sendMessageStream(sdk.ask("slow " + TEXT))) {
        events.push(sdk.plain(event));
        task ??= sdk.taskId(event);
        if (sdk.isWorking(event)) answer = sdk.plain(await client.cancelTask(sdk.byId(task)));
      }
      return { events, answer };
    },
  };
}

async function record(step, work) {
  try {
    return { step, result: await work() };
  } catch (error) {
    return { step, error: { type: error.constructor.name, message: error.message } };
  }
}

export async function run(client, card, sdk) {
  const recorded = [{ step: "card", result: card }];
  for (const [name, work] of Object.entries(steps(client, sdk))) recorded.push(await record(name, work));
  console.log(JSON.stringify(recorded));
}
