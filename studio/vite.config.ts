import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  base: "/studio/",
  plugins: [svelte()],
  build: {
    outDir: "../src/heedful/studio",
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { entryFileNames: "studio.js", assetFileNames: "studio[extname]", inlineDynamicImports: true },
    },
  },
});
