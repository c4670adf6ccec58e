// Tells which code actions add an import, and whether exactly one fits.

/** What is read of a code action. */
export interface Fix {
  title: string;
  isPreferred?: boolean | undefined;
}

/** Whether a quick fix of this title adds one import, in the words of the common language servers. */
export function addsImport({ title }: Fix): boolean {
  return /^(?:(?:add|update)\b.*\bimport\b|(?:import|include|using)\b)/i.test(title) && !/\ball\b/i.test(title);
}

/** The fix to take without a question: the only one that adds an import, or the only preferred one of those. */
export function certainImport<F extends Fix>(fixes: readonly F[]): F | undefined {
  const importing = fixes.filter(addsImport);
  const preferred = importing.filter(({ isPreferred }) => isPreferred === true);
  const [fix, ...others] = preferred.length > 0 ? preferred : importing;
  return others.length === 0 ? fix : undefined;
}
