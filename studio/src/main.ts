import { mount } from "svelte";
import "./studio.css";
import App from "./App.svelte";

mount(App, { target: document.getElementById("app")! });
