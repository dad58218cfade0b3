// A chat with a team: assistant-ui draws the conversation, AG-UI brings it from `orchestrator serve`.

import { HttpAgent } from "@ag-ui/client";
import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
} from "@assistant-ui/react";
import {
  useAgUiInterrupts,
  useAgUiRuntime,
  useAgUiState,
  useAgUiSubmitInterruptResponses,
} from "@assistant-ui/react-ag-ui";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";

const SERVER = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8642";

function Call({ toolName, argsText, result }) {
  const text = typeof result === "string" ? result : JSON.stringify(result);
  return (
    <div className="call">
      {toolName}({argsText}) {text === undefined ? "…" : `→ ${text.slice(0, 200)}`}
    </div>
  );
}

const Text = ({ text }) => <span>{text}</span>;
const UserMessage = () => (
  <MessagePrimitive.Root className="message user">
    <MessagePrimitive.Parts components={{ Text }} />
  </MessagePrimitive.Root>
);
const AssistantMessage = () => (
  <MessagePrimitive.Root className="message">
    <MessagePrimitive.Parts components={{ Text, tools: { Fallback: Call } }} />
  </MessagePrimitive.Root>
);

/** The questions of the run, each with two answers. */
function Questions() {
  const interrupts = useAgUiInterrupts();
  const submit = useAgUiSubmitInterruptResponses();
  const answer = (approved) =>
    submit(
      interrupts.map((it) => ({
        interruptId: it.id,
        status: "resolved",
        payload: { approved },
      })),
    );
  return interrupts.map((it) => (
    <div className="question" key={it.id}>
      <div>{it.message}</div>
      <button onClick={() => answer(true)}>Approve</button>{" "}
      <button onClick={() => answer(false)}>Deny</button>
    </div>
  ));
}

/** The tree of the run, from the state that the server shares. */
function Tasks() {
  const run = useAgUiState()?.orchestrator;
  const tasks = Object.entries(run?.tasks ?? {});
  return (
    <aside>
      <h2>Team</h2>
      <ul className="tasks">
        {run && (
          <li>
            <b>{run.agent}</b> <span className={run.status}>{run.status}</span>
          </li>
        )}
        {tasks.map(([id, it]) => (
          <li key={id} title={it.goal}>
            {it.agent} <span className={it.status}>{it.status}</span>
          </li>
        ))}
      </ul>
    </aside>
  );
}

function Chat({ apiKey }) {
  const agent = useMemo(
    () => new HttpAgent({ url: `${SERVER}/agui?agent=editor`, headers: { Authorization: `Bearer ${apiKey}` } }),
    [apiKey],
  );
  const runtime = useAgUiRuntime({ agent });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <main>
        <section>
          <h1>A team in a web page</h1>
          <ThreadPrimitive.Root>
            <ThreadPrimitive.Viewport>
              <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
            </ThreadPrimitive.Viewport>
            <Questions />
            <ComposerPrimitive.Root>
              <ComposerPrimitive.Input placeholder="Ask the team" rows={1} />
              <ComposerPrimitive.Send asChild>
                <button>Send</button>
              </ComposerPrimitive.Send>
            </ComposerPrimitive.Root>
          </ThreadPrimitive.Root>
        </section>
        <Tasks />
      </main>
    </AssistantRuntimeProvider>
  );
}

/** The page asks for the key of the server, and keeps it nowhere. */
function Page() {
  const [apiKey, setApiKey] = useState("");
  if (apiKey) return <Chat apiKey={apiKey} />;
  const take = (event) => {
    event.preventDefault();
    setApiKey(new FormData(event.target).get("key").trim());
  };
  return (
    <main>
      <section>
        <h1>The key of the server</h1>
        <form onSubmit={take}>
          <input name="key" type="password" autoComplete="off" autoFocus />
          <button>Open</button>
        </form>
      </section>
    </main>
  );
}

createRoot(document.getElementById("page")).render(<Page />);
