// The languages of the samples: their ids in LSP, and their support in the editor.

import { go } from "@codemirror/lang-go";
import { javascript } from "@codemirror/lang-javascript";
import { python } from "@codemirror/lang-python";
import { rust } from "@codemirror/lang-rust";
import type { LanguageSupport } from "@codemirror/language";

export const LANGUAGES: Readonly<Record<string, () => LanguageSupport>> = {
  python,
  javascript,
  typescript: () => javascript({ typescript: true }),
  rust,
  go,
};
