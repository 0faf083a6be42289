import { mount } from "svelte";
import "./studio.css";
import { report } from "./api";
import App from "./App.svelte";
import { allowSandbox } from "./sandbox";
import { select } from "./selection.svelte";

allowSandbox();
if (report && !location.hash) select({ view: report.selection?.kind ? "attention" : "results", ...report.selection });
mount(App, { target: document.getElementById("app")! });
